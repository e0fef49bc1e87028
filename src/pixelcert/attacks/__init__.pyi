from .aim import choose_pixels as choose_pixels
from .campaign import attack as attack
from .campaign import attack_certificate as attack_certificate
from .outcome import Attempt as Attempt
from .outcome import Outcome as Outcome
from .outcome import Toll as Toll
from .summary import Summary as Summary
from .summary import summarise as summarise
