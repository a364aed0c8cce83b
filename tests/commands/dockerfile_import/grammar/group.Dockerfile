RUN { echo a; echo b; } > /group && chmod 600 /group
