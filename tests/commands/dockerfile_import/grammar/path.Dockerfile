RUN mkdir -p /opt/own && printf '#!/bin/sh\necho own\n' > /opt/own/tool && chmod +x /opt/own/tool
