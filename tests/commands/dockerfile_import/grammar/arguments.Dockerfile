ARG A=1
ARG B=${A}2
ENV C=$B
RUN echo $A $B $C > /args
ARG A=3
RUN echo $A > /args3
