RUN mkdir -p /d && cd /d && touch x && cd .. && touch y
