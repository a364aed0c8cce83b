/* Shifts the time of day of programs that load this library by AHEAD seconds, a macro of the compiler.
   Sleeping, time-outs of the monotonic clock and times of files do not change. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/time.h>
#include <time.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *result) {
    int code = REAL(clock_gettime)(clock, result);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) result->tv_sec += AHEAD;
    return code;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    int code = REAL(gettimeofday)(result, zone);
    if (!code) result->tv_sec += AHEAD;
    return code;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *result, int base) {
    if (base != TIME_UTC) return REAL(timespec_get)(result, base);
    clock_gettime(CLOCK_REALTIME, result);
    return base;
}

/* Convert a shifted time to wait for into the kernel's time. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec now, kernel = *until;
    REAL(clock_gettime)(CLOCK_REALTIME, &now);
    if (kernel.tv_sec >= now.tv_sec + AHEAD / 2) kernel.tv_sec -= AHEAD;
    return kernel;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec moment = kernels(until);
    return REAL(pthread_cond_timedwait)(cond, mutex, &moment);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec moment = kernels(until);
    return REAL(pthread_mutex_timedlock)(mutex, &moment);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    struct timespec moment = kernels(until);
    return REAL(sem_timedwait)(semaphore, &moment);
}
