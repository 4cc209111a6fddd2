"""One rank of ChainerMN raises while the other waits for it."""

import chainermn

communicator = chainermn.create_communicator("naive")
if communicator.rank == 1:
    raise ValueError("the learning rate is negative")
communicator.allreduce_obj(1)
