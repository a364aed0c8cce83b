RUN <<E
set -e
echo one > /w1
E
RUN <<'E' cat > /w2
$HOME stays
E
RUN cat <<A > /a && cat <<B > /b
text a
A
text b
B
COPY <<E /etc/made.conf
name = value
E
