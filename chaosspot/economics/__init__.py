"""What preemption costs: savings that are measured, not assumed.

Read it in this order: ``ledger`` (what net savings are), ``interval`` (what they come to when
interruptions are independent), ``trace`` and ``traces/`` (how capacity really comes and goes),
``replay``, ``bootstrap`` and ``estimate`` (what a job makes of it), ``measured`` and ``scaling``
(what attacks say about a job), ``correlation``, ``shocks``, ``risks`` and ``seen`` (why losses come
in bulk), ``placement``, ``spreading`` and ``hybrid`` (what to do about it), ``deadline`` (jobs that
must be done in time). ``question`` answers ``chaosspot savings``, ``placing`` answers
``chaosspot place``.

Everything but the loaders, ``measured``, ``plot`` and ``files`` is pure; randomness is a numpy
Generator that is passed in.
"""
