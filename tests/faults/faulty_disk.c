/* Preloaded into a broker and its splitter: file operations fail or take long where the file of rules says so.
 *
 * Rules are read anew for every call, so that a test changes them while the broker runs. A line is
 *     OPERATION FIGURE PLACE
 * with OPERATION write, read or sync, FIGURE an errno or, behind a '~', milliseconds to wait, and PLACE a part of the
 * file's path. Calls on sockets and other files pass.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t (*vector_call)(int, const struct iovec *, int);
typedef ssize_t (*vector_at_call)(int, const struct iovec *, int, off64_t, int);
typedef ssize_t (*vector_place_call)(int, const struct iovec *, int, off64_t);
typedef ssize_t (*place_call)(int, void *, size_t, off64_t);
typedef int (*file_call)(int);

static void *next_one(const char *name) { return dlsym(RTLD_NEXT, name); }

/* The errno this call must fail with, 0 if it may go on; waits first if a rule says so. */
static int verdict(const char *operation, int fd) {
    const char *rules_path = getenv("CAIRN_TEST_FAULTS");
    char rules[4096], link[64], path[4096];
    if (rules_path == NULL) return 0;
    int file = open(rules_path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    place_call raw = (place_call)next_one("pread64");
    ssize_t size = raw(file, rules, sizeof rules - 1, 0);
    close(file);
    if (size <= 0) return 0;
    rules[size] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    char *rest = NULL;
    for (char *line = strtok_r(rules, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char named[16], figure[16], place[1024];
        if (sscanf(line, "%15s %15s %1023s", named, figure, place) != 3) continue;
        if (strcmp(named, operation) != 0 || strstr(path, place) == NULL) continue;
        if (figure[0] != '~') return atoi(figure);
        long wait = atol(figure + 1);
        struct timespec pause = {wait / 1000, (wait % 1000) * 1000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

#define REFUSE(operation, fd)                    \
    do {                                         \
        int number = verdict(operation, fd);     \
        if (number != 0) {                       \
            errno = number;                      \
            return -1;                           \
        }                                        \
    } while (0)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REFUSE("write", fd);
    return ((vector_call)next_one("writev"))(fd, parts, count);
}

ssize_t pread64(int fd, void *into, size_t size, off64_t at) {
    REFUSE("read", fd);
    return ((place_call)next_one("pread64"))(fd, into, size, at);
}

ssize_t pread(int fd, void *into, size_t size, off_t at) { return pread64(fd, into, size, at); }

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    REFUSE("read", fd);
    return ((vector_at_call)next_one("preadv64v2"))(fd, parts, count, at, flags);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return preadv64v2(fd, parts, count, at, flags);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t at) {
    REFUSE("read", fd);
    return ((vector_place_call)next_one("preadv64"))(fd, parts, count, at);
}

int fdatasync(int fd) {
    REFUSE("sync", fd);
    return ((file_call)next_one("fdatasync"))(fd);
}

int fsync(int fd) {
    REFUSE("sync", fd);
    return ((file_call)next_one("fsync"))(fd);
}

int syncfs(int fd) {
    REFUSE("sync", fd);
    return ((file_call)next_one("syncfs"))(fd);
}
