RUN rm -rf /usr/share/zoneinfo/Africa && rm -f /etc/motd
