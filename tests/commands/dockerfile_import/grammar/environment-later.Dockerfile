RUN echo ${V:-unset} > /v1
ENV V=1
RUN echo $V > /v2
ENV V=2
RUN echo $V > /v3
