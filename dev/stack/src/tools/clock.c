// Preloaded into one process, it gives that process another wall clock, as the file WEIR_CLOCK says: two signed integers of
// eight bytes in the machine's order, which may change at any time. The first says by how many milliseconds the clock is
// ahead. If the second is not 0, the clock stands there: so many milliseconds after the epoch. Timers run on the monotonic
// clock and are left alone.
//
// libfaketime does the same and more, but Envoy hangs under it before its first line of log: its allocator
// asks for the time while libfaketime's first call allocates. Nothing here allocates.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting {
    int64_t ahead_ms;
    int64_t stands_at_ms;
};

static const volatile struct setting *setting;

__attribute__((constructor)) static void map_setting(void) {
    const char *path = getenv("WEIR_CLOCK");
    if (!path) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        // Without it the process would run on the machine's clock, and a test would show nothing.
        perror(path);
        _exit(127);
    }
    close(file);
    setting = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && setting && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long stands_at_ms = setting->stands_at_ms;
        long long running_ns = time->tv_sec * 1000000000LL + time->tv_nsec + setting->ahead_ms * 1000000LL;
        long long ns = stands_at_ms ? stands_at_ms * 1000000LL : running_ns;
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
