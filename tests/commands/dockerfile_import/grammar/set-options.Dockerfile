RUN set -eux; echo a > /s1; set +e; false; echo b > /s2
