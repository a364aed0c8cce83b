RUN useradd -u 1234 app && touch /own && chown app:app /own && chown -h 5:6 /own
