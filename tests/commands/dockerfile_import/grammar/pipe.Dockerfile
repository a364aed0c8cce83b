RUN echo x | tee /tee | tr x y > /tr
