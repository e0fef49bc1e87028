/* Painting: the views of a map, and its pixels over the photograph. */

const WASH = 0.55; // how far a photograph is lightened below a map: black is then lighter than half of white

const VIEWS = {
  labels: {
    name: CORRECTED ? "certified map" : "map without correction",
    paint: paintLabels, key: showShares, promise: promiseOfLabels,
    lead: CORRECTED
      ? "Most noisy copies have the coloured pixels in the top K\u00a0% of their explanation and the white ones " +
        "outside, and no change of the image below R turns these majorities round. Grey pixels carry no promise."
      : "Coloured pixels passed a test of their own as inside the top K\u00a0% of the explanation, white ones as " +
        "outside. It was not corrected for many pixels: for study only.",
  },
  radius: {
    name: "radius map", paint: paintRadii, key: showRadii, promise: ({ radiusPromise }) => radiusPromise,
    lead: "Each pixel has a majority label: in the top K\u00a0% of most noisy copies' explanations, or outside. Its " +
      "colour says below which change of the image that majority cannot turn. Grey pixels carry no promise.",
  },
  smoothed: {
    name: "smoothed map", paint: paintSmoothed, key: showSmoothed,
    promise: () => "This view shows what was counted. It promises nothing: see the other two.",
    lead: "The darker a pixel, the more of the noisy copies had it in the top K\u00a0% of their explanation.",
  },
};

/** The colour of each pixel, as a function of its place. */
function paintLabels(map, level) {
  const { labels } = certify(map, level, state.tau);
  const { zero, abstained } = index.palette;
  const one = map.colours[map.levels.indexOf(level)];
  return (i) => (labels[i] === 1 ? one : labels[i] === 0 ? zero : abstained);
}

function paintRadii(map, level) {
  const votes = votesAt(map, level);
  const top = largestRadius(...shownMaps());
  return (i) => {
    const radius = radiusOf(map, votes, i);
    return radius > 0 ? index.palette.radius[Math.round((255 * radius) / top)] : index.palette.abstained;
  };
}

function paintSmoothed(map, level) {
  const { ones } = votesAt(map, level);
  return (i) => Array(3).fill(Math.round(255 * (1 - ones[i] / map.test.n)));
}

function picture(map, level) {
  const [height, width] = map.size;
  const image = new ImageData(width, height);
  const colourOf = VIEWS[state.view].paint(map, level);
  for (let i = 0; i < width * height; i++) {
    const [red, green, blue] = colourOf(i);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The photograph with the map over it, one pixel for one pixel. It is lightened, for over plain black white looks as
    grey does over white, and two labels would be one. */
function draw(canvas, map, level) {
  [canvas.height, canvas.width] = map.size;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ececec"; // where there is no photograph
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (map.photo) {
    context.drawImage(map.photo, 0, 0, canvas.width, canvas.height);
    context.globalAlpha = Math.min(WASH, state.opacity); // alone it is left as it is
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  context.globalAlpha = state.opacity;
  context.drawImage(picture(map, level), 0, 0);
}
