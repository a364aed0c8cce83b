RUN (cd /tmp && echo sub > /sub); pwd > /pwd
