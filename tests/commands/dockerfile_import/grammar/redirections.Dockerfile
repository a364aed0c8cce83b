RUN echo out > /r 2>&1 && ls /nosuch 2> /err || true; cat < /r >> /r2; : > /empty
