RUN if [ -d /usr ]; then echo dir > /if; elif [ -f /usr ]; then echo file > /if; else echo no > /if; fi
