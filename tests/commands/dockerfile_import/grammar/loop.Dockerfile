RUN for i in 1 2 3; do mkdir -p /l/$i && echo $i > /l/$i/n; done
