RUN useradd -m -u 1235 ada
RUN su ada -c 'touch ~/mine'
