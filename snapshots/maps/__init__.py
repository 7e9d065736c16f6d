"""Names of nets' arrays in the files that others share.

`net.load("model.safetensors", names=snapshots.maps.gpt2(net))`, and `save` with the same names. Each map is made
for a net, by the classes of its layers and their order, whatever they are called. Layouts are converted, values are
not: the net must compute what the file is for. `singa_lite.models` makes such nets.
"""

from singa_lite.snapshots.maps.bert import bert as bert
from singa_lite.snapshots.maps.gpt2 import gpt2 as gpt2
from singa_lite.snapshots.maps.images import densenet121 as densenet121
from singa_lite.snapshots.maps.images import mobilenet_v2 as mobilenet_v2
from singa_lite.snapshots.maps.images import resnet50 as resnet50
from singa_lite.snapshots.torch_layout import NameMap as NameMap
