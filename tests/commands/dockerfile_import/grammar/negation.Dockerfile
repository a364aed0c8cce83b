RUN ! test -e /nosuch && echo yes > /yes
