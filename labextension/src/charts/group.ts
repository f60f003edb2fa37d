/** Plots with a common x axis: they zoom and pan together and share a cursor. */
import type { IGroupFrame, IPicture } from './picture.js';
import { PicturePlot } from './pictureplot.js';
import { h, setHidden } from '../dom/dom.js';
import type { ITrans } from '../model/trans.js';
import type { Range } from './uplotparts.js';

let numGroups = 0;

/** The part of a plot that a group uses; tests implement it by something simpler. */
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
  /** Called when the user has zoomed or panned to a range; `null`: to the whole axis. */
  onZoom?: (range: Range | null) => void;
  makePlot?: MakePlot;
}

export class PlotGroup {
  readonly node = h('div.det-group');

  constructor(private readonly _options: IGroupOptions) {
    numGroups += 1;
    this._syncKey = `det-group-${numGroups}`;
  }

  /** The range that the user has zoomed to. */
  get zoom(): Range | null {
    return this._zoom;
  }

  /** Show these pictures, by section and title; `whole` is the frame without a zoom. */
  update(pictures: readonly IPicture[], whole: IGroupFrame): void {
    if (whole.axis !== this._whole.axis || whole.logX !== this._whole.logX) {
      this._zoom = null; // the zoom was in units of the axis before
    }
    this._whole = whole;
    const gone = new Set(this._plots.keys());
    const places = new Map<string, number>();
    for (const picture of pictures) {
      const { section = '', title } = picture;
      const key = `${section} ${title}`;
      gone.delete(key);
      const plot = this._plots.get(key) ?? this._add(key);
      const place = places.get(section) ?? 0;
      places.set(section, place + 1);
      const grid = this._gridOf(section);
      if (grid.children[place] !== plot.node) {
        grid.insertBefore(plot.node, grid.children[place] ?? null);
      }
      plot.update(picture);
    }
    for (const key of gone) {
      this._plots.get(key)?.node.remove();
      this._plots.get(key)?.dispose();
      this._plots.delete(key);
    }
    this._grids.forEach((grid, section) => {
      setHidden(grid.parentElement as HTMLElement, !places.has(section));
    });
  }

  /** Show this range of the axis; `null`: the whole. */
  setZoom(range: Range | null): void {
    this._zoom = range;
    this._plots.forEach(plot => plot.redraw());
    this._options.onZoom?.(range);
  }

  /** Apply the colours of a changed theme. */
  restyle(): void {
    this._plots.forEach(plot => plot.restyle());
  }

  dispose(): void {
    this._plots.forEach(plot => plot.dispose());
    this._plots.clear();
  }

  private _gridOf(section: string): HTMLElement {
    const known = this._grids.get(section);
    if (known !== undefined) {
      return known;
    }
    const grid = h('div.det-grid');
    const title = section === '' ? null : h('div.det-section-title', {}, section);
    this.node.append(h('section', { 'aria-label': section || null }, title, grid));
    this._grids.set(section, grid);
    return grid;
  }

  private _add(key: string): IGroupPlot {
    const make: MakePlot = this._options.makePlot ?? (membership => new PicturePlot(membership));
    const plot = make({
      trans: this._options.trans,
      syncKey: this._syncKey,
      frame: () => ({ ...this._whole, range: this._zoom ?? this._whole.range }),
      onZoom: range => this.setZoom(range)
    });
    this._plots.set(key, plot);
    return plot;
  }

  private readonly _syncKey: string;
  private readonly _plots = new Map<string, IGroupPlot>();
  private readonly _grids = new Map<string, HTMLElement>();
  private _whole: IGroupFrame = { range: [0, 1], axis: 'time', logX: false };
  private _zoom: Range | null = null;
}
