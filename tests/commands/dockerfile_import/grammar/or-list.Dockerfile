RUN false || echo or > /or
RUN true || echo no > /no
