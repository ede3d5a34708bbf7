package attribution

// workQueue is a send queue or a receive queue: the work requests that were
// seen posted and not yet seen completed, in queue order.
type workQueue struct{}
