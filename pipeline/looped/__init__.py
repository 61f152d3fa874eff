"""The looped transformer: a frozen transformer that is programmed instead of trained.

    from pipeline.looped.assembler import assemble
    from pipeline.looped.subleq import SubleqMachine

    program = assemble(text)
    machine = SubleqMachine.for_programs([program])
    machine.run([program]).values("product")

Source: "Looped Transformers as Programmable Computers" (arXiv 2301.13196). Start reading at `subleq.py`. Nothing is
imported here, so that a stage depends only on the modules that it uses.
"""
