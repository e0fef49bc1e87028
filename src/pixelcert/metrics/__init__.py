"""Metrics: how robust, how well localised and how faithful certified maps are. Pure functions of maps and labels."""

from .aggregation import EDGES as EDGES
from .aggregation import agg_att as agg_att
from .aggregation import agg_att_bins as agg_att_bins
from .certified import Shares as Shares
from .certified import percent_certified as percent_certified
from .certified import shares as shares
from .deletion import DeletionCurve as DeletionCurve
from .deletion import certified_order as certified_order
from .deletion import deletion_curve as deletion_curve
from .deletion import deletion_masks as deletion_masks
from .deletion import order_masks as order_masks
from .localisation import Interval as Interval
from .localisation import cell_mask as cell_mask
from .localisation import certified_grid_pg as certified_grid_pg
from .localisation import certified_interval as certified_interval
from .localisation import grid_pg as grid_pg
from .localisation import random_baseline as random_baseline
