RUN mkdir /g && cd /g && touch a1 a2 b1 && echo a* > list && rm a?
