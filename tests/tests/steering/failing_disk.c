// Library preloaded into a target, whose calls for the configuration file then fail as on a failing
// disk. A fault is active while a file of its name exists in the folder $FAULTS: "sync" fails fsync
// of folders, "back" fails renames after such a failure, "full" fails writes to files named
// "*.new". Each failed write adds a byte to "full".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int sync_has_failed;

static const char *fault(const char *name, char *path, size_t length) {
    const char *folder = getenv("FAULTS");
    snprintf(path, length, "%s/%s", folder ? folder : "", name);
    return access(path, F_OK) == 0 ? path : NULL;
}

int fsync(int fd) {
    char path[4096];
    struct stat stat;
    if (fstat(fd, &stat) == 0 && S_ISDIR(stat.st_mode) && fault("sync", path, sizeof path)) {
        sync_has_failed = 1;
        errno = EIO;
        return -1;
    }
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}

int rename(const char *from, const char *to) {
    char path[4096];
    if (sync_has_failed && fault("back", path, sizeof path)) {
        errno = EIO;
        return -1;
    }
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    return real(from, to);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    char path[4096], link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t end = readlink(link, name, sizeof name - 1);
    if (end > 4 && memcmp(name + end - 4, ".new", 4) == 0 && fault("full", path, sizeof path)) {
        int counter = open(path, O_WRONLY | O_APPEND);
        if (counter >= 0) {
            real(counter, "x", 1);
            close(counter);
        }
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, length);
}
