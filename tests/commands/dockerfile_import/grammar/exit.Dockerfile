RUN echo before > /x1; exit 0; echo after > /x2
