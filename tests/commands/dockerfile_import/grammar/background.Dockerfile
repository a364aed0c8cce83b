RUN sleep 0.1 & wait; echo done > /wait
