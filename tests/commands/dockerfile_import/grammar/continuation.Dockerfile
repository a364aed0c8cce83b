RUN echo a \
  # a comment
  b \

  c > /cont
