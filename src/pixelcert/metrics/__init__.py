"""Metrics: how robust, how well localised and how faithful certified maps are. Pure functions of maps and labels."""

from .faithfulness import DeletionCurve as DeletionCurve
from .faithfulness import deletion_curve as deletion_curve
from .faithfulness import deletion_masks as deletion_masks
from .faithfulness import order_masks as order_masks
from .localisation import EDGES as EDGES
from .localisation import Interval as Interval
from .localisation import agg_att as agg_att
from .localisation import agg_att_bins as agg_att_bins
from .localisation import cell_mask as cell_mask
from .localisation import certified_grid_pg as certified_grid_pg
from .localisation import certified_interval as certified_interval
from .localisation import grid_pg as grid_pg
from .localisation import random_baseline as random_baseline
from .robustness import Shares as Shares
from .robustness import percent_certified as percent_certified
from .robustness import shares as shares
