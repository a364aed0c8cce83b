RUN n=0; while [ $n -lt 3 ]; do n=$((n+1)); echo $n >> /while; done
