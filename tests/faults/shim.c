/* Preloaded before libc: counts what a process and its forks change under a folder, and asks Python when to fail.
 *
 * An operation is a call that changes a file or a name under the folder: open for writing, write, truncate, copy, rename,
 * link, unlink, mkdir, rmdir. Python, torch, safetensors and pyarrow all make them through libc, so none is missed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int (*Meet)(const char *event, const char *path, long count); /* 0: go on; TEAR; else the errno to fail with */
enum { TEAR = -1 };

static char root[PATH_MAX];
static long *counter, from;
static Meet meet;
static const char *unreadable; /* the ending of names whose reading fails */
static __thread int busy; /* operations of `meet` itself do not count */

/* Watch `folder`. `count` lies in memory shared with forks. `callback` is asked at operation number `at` and all later ones. */
void faults_arm(const char *folder, long *count, long at, Meet callback) {
    snprintf(root, sizeof root, "%s/", folder);
    counter = count;
    from = at;
    meet = callback;
}

/* From now on a file whose name ends so cannot be read: EIO, as from a bad disk. */
void faults_unreadable(const char *ending) { unreadable = strdup(ending); }

static int is_unreadable(const char *path) {
    if (unreadable == NULL || strncmp(path, root, strlen(root)) != 0) return 0;
    size_t length = strlen(path), end = strlen(unreadable);
    if (length < end || strcmp(path + length - end, unreadable) != 0) return 0;
    errno = EIO;
    return 1;
}

static int operation(const char *event, const char *path) {
    if (meet == NULL || busy || strncmp(path, root, strlen(root)) != 0) return 0;
    long count = __sync_add_and_fetch(counter, 1);
    if (count < from) return 0;
    int before = errno;
    busy = 1;
    int answer = meet(event, path, count);
    busy = 0;
    errno = answer > 0 ? answer : before;
    return answer;
}

static const char *of_descriptor(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static const char *whole(int folder, const char *name, char *path) {
    if (name[0] == '/') return name;
    char start[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (getcwd(start, sizeof start) == NULL) return name;
    } else {
        of_descriptor(folder, start);
    }
    if (snprintf(path, PATH_MAX, "%s/%s", start, name) >= PATH_MAX) return name;
    return path;
}

static int is_there(const char *path) {
    struct stat status;
    int before = errno, found = lstat(path, &status) == 0;
    errno = before;
    return found;
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define AT(event, folder, name) \
    char path_[PATH_MAX]; \
    if (meet && operation(event, whole(folder, name, path_)) > 0) return -1
#define AT_IF_THERE(event, there, folder, name) \
    char path_[PATH_MAX]; \
    if (meet && is_there(whole(folder, name, path_)) == there && operation(event, whole(folder, name, path_)) > 0) return -1

#define OPEN(name, folder_, signature, ...) \
    int name signature { \
        NEXT(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) { AT("open", folder_, file); } \
        else { char path[PATH_MAX]; if (meet && is_unreadable(whole(folder_, file, path))) return -1; } \
        return next(__VA_ARGS__, flags, mode); \
    }
OPEN(open, AT_FDCWD, (const char *file, int flags, ...), file)
OPEN(open64, AT_FDCWD, (const char *file, int flags, ...), file)
OPEN(openat, folder, (int folder, const char *file, int flags, ...), folder, file)
OPEN(openat64, folder, (int folder, const char *file, int flags, ...), folder, file)

#define FOPEN(name) \
    FILE *name(const char *file, const char *mode) { \
        NEXT(name); \
        char path[PATH_MAX]; \
        if (meet && strpbrk(mode, "wa+") && operation("open", whole(AT_FDCWD, file, path)) > 0) return NULL; \
        return next(file, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int rename(const char *old, const char *new) { NEXT(rename); AT("rename", AT_FDCWD, new); return next(old, new); }
int renameat(int from_, const char *old, int to, const char *new) { NEXT(renameat); AT("rename", to, new); return next(from_, old, to, new); }
int renameat2(int from_, const char *old, int to, const char *new, unsigned flags) { NEXT(renameat2); AT("rename", to, new); return next(from_, old, to, new, flags); }
int link(const char *old, const char *new) { NEXT(link); AT("link", AT_FDCWD, new); return next(old, new); }
int linkat(int from_, const char *old, int to, const char *new, int flags) { NEXT(linkat); AT("link", to, new); return next(from_, old, to, new, flags); }
int symlink(const char *old, const char *new) { NEXT(symlink); AT("link", AT_FDCWD, new); return next(old, new); }
int unlink(const char *file) { NEXT(unlink); AT_IF_THERE("unlink", 1, AT_FDCWD, file); return next(file); }
int unlinkat(int folder, const char *file, int flags) { NEXT(unlinkat); AT_IF_THERE("unlink", 1, folder, file); return next(folder, file, flags); }
int rmdir(const char *file) { NEXT(rmdir); AT_IF_THERE("rmdir", 1, AT_FDCWD, file); return next(file); }
int mkdir(const char *file, mode_t mode) { NEXT(mkdir); AT_IF_THERE("mkdir", 0, AT_FDCWD, file); return next(file, mode); }
int mkdirat(int folder, const char *file, mode_t mode) { NEXT(mkdirat); AT_IF_THERE("mkdir", 0, folder, file); return next(folder, file, mode); }
int truncate(const char *file, off_t size) { NEXT(truncate); AT("truncate", AT_FDCWD, file); return next(file, size); }
int truncate64(const char *file, off64_t size) { NEXT(truncate64); AT("truncate", AT_FDCWD, file); return next(file, size); }

#define ON_DESCRIPTOR(event, fd) char path_[PATH_MAX]; if (meet && operation(event, of_descriptor(fd, path_)) > 0) return -1
int ftruncate(int fd, off_t size) { NEXT(ftruncate); ON_DESCRIPTOR("truncate", fd); return next(fd, size); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); ON_DESCRIPTOR("truncate", fd); return next(fd, size); }
ssize_t sendfile(int to, int from_, off_t *at, size_t size) { NEXT(sendfile); ON_DESCRIPTOR("write", to); return next(to, from_, at, size); }
ssize_t sendfile64(int to, int from_, off64_t *at, size_t size) { NEXT(sendfile64); ON_DESCRIPTOR("write", to); return next(to, from_, at, size); }
ssize_t copy_file_range(int from_, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    NEXT(copy_file_range); ON_DESCRIPTOR("write", to); return next(from_, at, to, there, size, flags);
}

/* A torn write: half of it, and the process is gone. */
#define WRITE(fd, torn) \
    if (meet) { \
        char path_[PATH_MAX]; \
        int answer = operation("write", of_descriptor(fd, path_)); \
        if (answer == TEAR) { torn; kill(getpid(), SIGKILL); } \
        if (answer > 0) return -1; \
    }
ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write); WRITE(fd, (void)!next(fd, data, size / 2)); return next(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT(pwrite); WRITE(fd, (void)!next(fd, data, size / 2, at)); return next(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64); WRITE(fd, (void)!next(fd, data, size / 2, at)); return next(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev); WRITE(fd, (void)!syscall(SYS_write, fd, parts[0].iov_base, parts[0].iov_len / 2)); return next(fd, parts, count);
}
