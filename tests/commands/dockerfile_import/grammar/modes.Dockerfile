RUN umask 077 && touch /m1 && install -m 4755 /m1 /m2 && mkdir -m 1777 /m3 && chmod g+s /m3
