RUN echo 'a && b; c' > /q1 && echo "d \"e\" \$HOME $HOME" > /q2 && echo f\ g > '/q 3'
