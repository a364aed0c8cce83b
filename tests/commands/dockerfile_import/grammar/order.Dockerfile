RUN echo first > /order
RUN apt-get --version > /dev/null && echo second >> /order
RUN rm -rf /usr/share/made && mkdir -p /usr/share/made && echo third >> /order
RUN cp /order /usr/share/made/copy && sed -i s/first/1st/ /order
