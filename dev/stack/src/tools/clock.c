// Preloaded into one process, it moves that process' wall clock by WEIR_CLOCK_AHEAD_MS milliseconds.
// Timers run on the monotonic clock and are left alone.
//
// libfaketime does the same and more, but Envoy hangs under it before its first line of log: its allocator
// asks for the time while libfaketime's first call allocates. Nothing here allocates.

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long ahead_ns;

__attribute__((constructor)) static void read_offset(void) {
    const char *text = getenv("WEIR_CLOCK_AHEAD_MS");
    if (text) ahead_ns = atoll(text) * 1000000;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = time->tv_sec * 1000000000LL + time->tv_nsec + ahead_ns;
        time->tv_sec = ns / 1000000000;
        time->tv_nsec = ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
