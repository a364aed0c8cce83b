ENV A='x y' B="$A z" C=d\ e
ENV OLD the rest of the line
RUN printf '%s|' "$A" "$B" "$C" "$OLD" > /env
