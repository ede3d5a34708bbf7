/* The truth log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "opcode.h"
#include "truth.h"

#define BUFFER (8 << 20)

static FILE *out;               /* NULL: ended, or never began */
static uint64_t written;
static bool dirty;

bool truth_open(const char *path)
{
	out = fopen(path, "we");
	if (!out)
		return false;
	setvbuf(out, NULL, _IOFBF, BUFFER);
	fputs("kind,pid,qpn,cqn,wqe,opcode,bytes,flags,batch,t_doorbell,t_wire,"
	      "t_arrive_due,t_arrive,t_cqe_due,t_cqe,injected_ns,cqe_index\n", out);
	return !fflush(out);
}

/* After a line of N bytes, negative on an error: is there room for more? */
static void wrote(int n)
{
	dirty = true;
	written += n;
	if (n >= 0 && written >> 20 < (uint64_t)param.log_mb)
		return;
	if (n < 0)
		fprintf(stderr, "softmlx5d: the truth log ends here: %s\n", strerror(errno));
	else
		fprintf(stderr, "softmlx5d: the truth log ends here, at LOG_MB=%ld\n",
			(long)param.log_mb);
	fclose(out);
	out = NULL;
}

void truth_flush(void)
{
	if (out && dirty && fflush(out))
		wrote(-1);
	dirty = false;
}

void truth_send(const struct qp *q, const struct wr *w, ns_t t_cqe, int64_t cqe_index)
{
	char flags[16];

	if (!out)
		return;
	snprintf(flags, sizeof(flags), "%s%s%s%s%s%s%s%s", w->signaled ? "s" : "",
		 w->inl_len ? "i" : "", w->slow ? "S" : "", w->syndrome ? "E" : "",
		 w->rnr ? "r" : "", w->solicited ? "o" : "",
		 w->struck && !w->rnr ? "t" : "", cqe_index >= 0 && q->scq->held ? "h" : "");
	wrote(fprintf(out, "S,%d,%u,%u,%u,%s,%u,%s,%u,%lu,%lu,%lu,%lu,%lu,%lu,%lu,%ld\n",
		      q->ctx->pid, q->qpn, q->scq->cqn, w->idx, opcode_name(w->opcode),
		      w->bytes, *flags ? flags : "-", w->batch, w->t_db, w->t_wire, w->t_arr,
		      w->t_exec, w->t_cqe_due, t_cqe, w->injected, (long)cqe_index));
}

void truth_recv(const struct qp *q, unsigned idx, uint32_t bytes, bool error, ns_t t_arr,
		ns_t t_cqe, uint32_t cqe_index)
{
	char flags[4];

	if (!out)
		return;
	snprintf(flags, sizeof(flags), "%s%s%s", error ? "E" : "", q->srq ? "q" : "",
		 q->rcq->held ? "h" : "");
	wrote(fprintf(out, "R,%d,%u,%u,%u,RECV,%u,%s,0,0,0,0,%lu,0,%lu,0,%u\n", q->ctx->pid,
		      q->qpn, q->rcq->cqn, idx, bytes, *flags ? flags : "-", t_arr, t_cqe, cqe_index));
}

void truth_event(const struct cq *c, int sn, ns_t t, ns_t injected)
{
	if (!out)
		return;
	wrote(fprintf(out, "E,%d,0,%u,%d,EVENT,0,-,0,0,0,0,0,%lu,%lu,%lu,%u\n", c->ctx->pid,
		      c->cqn, sn, c->last_cqe, t, injected, c->pi));
}
