ARG KIND=b
RUN case $KIND in a) echo 1 > /k;; b) echo 2 > /k;; *) echo 3 > /k;; esac
