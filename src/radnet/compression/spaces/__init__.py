"""What can stand along the feature axes of a program, and the smallest bases for it.

The words that this part of the package uses:

entry
    One coordinate of a feature axis, as a number. Steps that identify coordinates (a sum, a radial activation) unite
    their numbers; the representative of united numbers is their *root*.
feature
    The feature axis of one tensor: its entries in their order, which axis of the tensor it is, and its *span*, the
    affine set of all vectors that can ever stand there.
space
    Entries that always appear together and in the same order; they change basis together or not at all. A residual
    stream with all that is added to it is one space, and so is one block of a block-radial activation.
run
    A stretch of a feature that lies in one space. Most features are one run; a concatenation has one for each part.
source
    Something that may take any value, independently of other sources: an input, the output of a nonlinear step, a
    neighbouring position seen by a convolution. Spans are sums over sources.
constant
    The part of a span that does not vary: what biases and parameters add up to.
mark
    One more coordinate of a space that holds a known number, so that a reader can take constants off it.
pin
    A reason why a space must stay as it is.
use
    A layer or a parameter at one place in the program, with the features it reads and writes.
"""
