RUN mkdir /n && cd /n && touch -- -x 'sp ace' 'qu"ote' 'é' || touch ascii
