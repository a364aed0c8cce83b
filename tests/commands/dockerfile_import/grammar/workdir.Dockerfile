WORKDIR /a
WORKDIR b/c
RUN pwd > where
WORKDIR ../d
RUN pwd > where
