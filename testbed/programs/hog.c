/* oracle-hog: computes until it is killed. */
int main(void)
{
	for (volatile unsigned long n = 0;; n++)
		;
}
