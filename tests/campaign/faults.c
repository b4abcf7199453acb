/* Loaded before libc (LD_PRELOAD): of the calls that change something below FAULT_FOLDER, the one numbered FAULT_AT
   fails as on a full disk, and with FAULT_STICKY all after it, too. Each call adds a byte to the file FAULT_COUNT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int calls;

static int fails(const char *path) {
    const char *folder = getenv("FAULT_FOLDER"), *at = getenv("FAULT_AT"), *count = getenv("FAULT_COUNT");
    if (!folder || !path || strncmp(path, folder, strlen(folder))) return 0;
    int number = __sync_add_and_fetch(&calls, 1);
    if (count) {
        int file = syscall(SYS_openat, AT_FDCWD, count, O_WRONLY | O_CREAT | O_APPEND, 0600);
        syscall(SYS_write, file, ".", 1);
        syscall(SYS_close, file);
    }
    if (!at || number < atoi(at) || (number > atoi(at) && !getenv("FAULT_STICKY"))) return 0;
    errno = ENOSPC;
    return 1;
}

static int fails_at(int fd) {
    char link[64], path[4096];
    if (!getenv("FAULT_FOLDER")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define MODE va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest)

int open(const char *path, int flags, ...) { MODE; return flags & WRITES && fails(path) ? -1 : REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; return flags & WRITES && fails(path) ? -1 : REAL(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE; return flags & WRITES && fails(path) ? -1 : REAL(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE; return flags & WRITES && fails(path) ? -1 : REAL(openat64)(at, path, flags, mode); }
ssize_t write(int fd, const void *data, size_t size) { return fails_at(fd) ? -1 : REAL(write)(fd, data, size); }
ssize_t writev(int fd, const struct iovec *data, int number) { return fails_at(fd) ? -1 : REAL(writev)(fd, data, number); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return fails_at(fd) ? -1 : REAL(pwrite)(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return fails_at(fd) ? -1 : REAL(pwrite64)(fd, data, size, at); }
int fsync(int fd) { return fails_at(fd) ? -1 : REAL(fsync)(fd); }
int rename(const char *from, const char *to) { return fails(from) ? -1 : REAL(rename)(from, to); }
int link(const char *from, const char *to) { return fails(to) ? -1 : REAL(link)(from, to); }
int mkdir(const char *path, mode_t mode) { return fails(path) ? -1 : REAL(mkdir)(path, mode); }
