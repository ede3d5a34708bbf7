/* The calls of libc that are interposed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <linux/netlink.h>
#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

#define NEXT(ret, name, ...) \
	static ret (*real_##name)(__VA_ARGS__); \
	if (!real_##name) \
		real_##name = (ret (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static const char dev_path[] = "/dev/infiniband/" SM5_UVERBS;
static const char sys_prefix[] = "/sys/class/infiniband";

static bool is_device(const char *path)
{
	return path && !strcmp(path, dev_path);
}

/* The sysfs tree the daemon wrote stands in for the kernel's. */
static const char *redirect(const char *path, char buf[512])
{
	if (!path || strncmp(path, sys_prefix, sizeof(sys_prefix) - 1))
		return path;
	snprintf(buf, 512, "%s%s", sm5_dir(), path);
	return buf;
}

/* What libibverbs requires of the device node. */
static void fake_chr(struct stat *st)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = makedev(SM5_MAJOR, SM5_MINOR);
}

/* The third argument is there only when a file may be created. */
#define MODE_OF(flags, mode) do { \
	va_list ap_; \
	va_start(ap_, flags); \
	mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(ap_, int) : 0; \
	va_end(ap_); \
} while (0)

EXPORT int ioctl(int fd, unsigned long req, ...)
{
	NEXT(int, ioctl, int, unsigned long, ...);
	struct sm5_ctx *c = ctx_get(fd);
	va_list ap;
	void *arg;
	int err;

	va_start(ap, req);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!c)
		return real_ioctl(fd, req, arg);
	if (req != RDMA_VERBS_IOCTL) {
		errno = ENOTTY;
		return -1;
	}
	/* The socket is the parent's; its answers must not come here. */
	if (c->pid != getpid()) {
		errno = EIO;
		return -1;
	}
	pthread_mutex_lock(&c->lock);
	err = uverbs_ioctl(c, arg);
	pthread_mutex_unlock(&c->lock);
	if (err) {
		errno = err;
		return -1;
	}
	return 0;
}

EXPORT int open(const char *path, int flags, ...)
{
	NEXT(int, open, const char *, int, ...);
	char b[512];
	int mode;

	MODE_OF(flags, mode);
	if (is_device(path))
		return open_device();
	return real_open(redirect(path, b), flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	NEXT(int, open64, const char *, int, ...);
	char b[512];
	int mode;

	MODE_OF(flags, mode);
	if (is_device(path))
		return open_device();
	return real_open64(redirect(path, b), flags, mode);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	NEXT(int, openat, int, const char *, int, ...);
	char b[512];
	int mode;

	MODE_OF(flags, mode);
	if (is_device(path))
		return open_device();
	return real_openat(dir, redirect(path, b), flags, mode);
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
	NEXT(int, openat64, int, const char *, int, ...);
	char b[512];
	int mode;

	MODE_OF(flags, mode);
	if (is_device(path))
		return open_device();
	return real_openat64(dir, redirect(path, b), flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	NEXT(FILE *, fopen, const char *, const char *);
	char b[512];

	return real_fopen(redirect(path, b), mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	NEXT(FILE *, fopen64, const char *, const char *);
	char b[512];

	return real_fopen64(redirect(path, b), mode);
}

EXPORT DIR *opendir(const char *path)
{
	NEXT(DIR *, opendir, const char *);
	char b[512];

	return real_opendir(redirect(path, b));
}

EXPORT int stat(const char *path, struct stat *st)
{
	NEXT(int, stat, const char *, struct stat *);
	char b[512];

	if (is_device(path)) {
		memset(st, 0, sizeof(*st));
		fake_chr(st);
		return 0;
	}
	return real_stat(redirect(path, b), st);
}

EXPORT int fstat(int fd, struct stat *st)
{
	NEXT(int, fstat, int, struct stat *);
	int r = real_fstat(fd, st);

	if (!r && ctx_get(fd))
		fake_chr(st);
	return r;
}

/* On 64 bit machines these are the same structure. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "a 64 bit machine");

EXPORT int stat64(const char *path, struct stat64 *st)
{
	return stat(path, (struct stat *)st);
}

EXPORT int fstat64(int fd, struct stat64 *st)
{
	return fstat(fd, (struct stat *)st);
}

EXPORT int access(const char *path, int mode)
{
	NEXT(int, access, const char *, int);
	char b[512];

	if (is_device(path))
		return 0;
	return real_access(redirect(path, b), mode);
}

EXPORT char *realpath(const char *path, char *resolved)
{
	NEXT(char *, realpath, const char *, char *);
	char b[512];

	return real_realpath(redirect(path, b), resolved);
}

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t len)
{
	(void)len;
	return realpath(path, resolved);
}

/* No RDMA netlink: libibverbs then looks in sysfs. */
EXPORT int socket(int domain, int type, int protocol)
{
	NEXT(int, socket, int, int, int);

	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return real_socket(domain, type, protocol);
}

EXPORT int close(int fd)
{
	close_hook(fd);
	return sys_close(fd);
}
