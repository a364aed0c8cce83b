/* Tells programs that load it a time of day that is AHEAD seconds later, which the compiler is told.
   Only the time of day: sleeping, timeouts by the monotonic clock and the times of files stay as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/time.h>
#include <time.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *found) {
    int code = REAL(clock_gettime)(clock, found);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += AHEAD;
    return code;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    int code = REAL(gettimeofday)(found, zone);
    if (!code) found->tv_sec += AHEAD;
    return code;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *found, int base) {
    if (base != TIME_UTC) return REAL(timespec_get)(found, base);
    clock_gettime(CLOCK_REALTIME, found);
    return base;
}

/* A moment to wait for that was made of the later time is one of the kernel's again. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec now, found = *until;
    REAL(clock_gettime)(CLOCK_REALTIME, &now);
    if (found.tv_sec >= now.tv_sec + AHEAD / 2) found.tv_sec -= AHEAD;
    return found;
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
