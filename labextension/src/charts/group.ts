/** Plots of one x axis: they zoom and pan together, and each shows its values at the same x. */
import type { IGroupFrame, IPicture } from './picture.js';
import { PicturePlot } from './pictureplot.js';
import { h } from '../dom/dom.js';
import type { ITrans } from '../model/trans.js';
import type { Range } from './uplotparts.js';

let numGroups = 0;

/** What a group needs of a plot; tests put something simpler in its place. */
export interface IGroupPlot {
  readonly node: HTMLElement;
  update(picture: IPicture): void;
  redraw(): void;
  restyle(): void;
  dispose(): void;
}

export type MakePlot = (membership: ConstructorParameters<typeof PicturePlot>[0]) => IGroupPlot;

export interface IGroupOptions {
  trans: ITrans;
  /** The reader has zoomed or moved to this part of the axis; `null`: back to the whole. */
  onZoom?: (range: Range | null) => void;
  makePlot?: MakePlot;
}

export class PlotGroup {
  readonly node = h('div.det-grid');

  constructor(private readonly _options: IGroupOptions) {
    numGroups += 1;
    this._syncKey = `det-group-${numGroups}`;
  }

  /** The part of the axis that the reader has chosen. */
  get zoom(): Range | null {
    return this._zoom;
  }

  /** Show these, by title; `whole` is the axis without a zoom. */
  update(pictures: readonly IPicture[], whole: IGroupFrame): void {
    if (whole.axis !== this._whole.axis || whole.logX !== this._whole.logX) {
      this._zoom = null; // its numbers are of another axis
    }
    this._whole = whole;
    const gone = new Set(this._plots.keys());
    pictures.forEach((picture, place) => {
      gone.delete(picture.title);
      const plot = this._plots.get(picture.title) ?? this._add(picture.title);
      if (this.node.children[place] !== plot.node) {
        this.node.insertBefore(plot.node, this.node.children[place] ?? null);
      }
      plot.update(picture);
    });
    for (const title of gone) {
      this._plots.get(title)?.node.remove();
      this._plots.get(title)?.dispose();
      this._plots.delete(title);
    }
  }

  /** Show this part of the axis; `null`: the whole. */
  setZoom(range: Range | null): void {
    this._zoom = range;
    this._plots.forEach(plot => plot.redraw());
    this._options.onZoom?.(range);
  }

  /** Take over changed colours. */
  restyle(): void {
    this._plots.forEach(plot => plot.restyle());
  }

  dispose(): void {
    this._plots.forEach(plot => plot.dispose());
    this._plots.clear();
  }

  private _add(title: string): IGroupPlot {
    const make: MakePlot = this._options.makePlot ?? (membership => new PicturePlot(membership));
    const plot = make({
      trans: this._options.trans,
      syncKey: this._syncKey,
      frame: () => ({ ...this._whole, range: this._zoom ?? this._whole.range }),
      onZoom: range => this.setZoom(range)
    });
    this._plots.set(title, plot);
    return plot;
  }

  private readonly _syncKey: string;
  private readonly _plots = new Map<string, IGroupPlot>();
  private _whole: IGroupFrame = { range: [0, 1], axis: 'time', logX: false };
  private _zoom: Range | null = null;
}
