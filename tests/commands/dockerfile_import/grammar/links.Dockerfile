RUN echo t > /t && ln -s t /s && ln /t /h && mkdir /dir && ln -s /dir /ldir && ln -s nosuch /dangling
