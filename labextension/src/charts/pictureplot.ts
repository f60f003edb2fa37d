/** A plot of a group: curves or a stack, with a legend of names and values. */
import type uPlot from 'uplot';

import { placeText } from './axes.js';
import { valueBefore } from './curves.js';
import { Figure } from './figure.js';
import { frames } from '../dom/frames.js';
import { h, rebuilder, setText } from '../dom/dom.js';
import {
  pictureColumns,
  pictureOptions,
  pictureShape,
  type ICurve,
  type IGroupFrame,
  type IPicture
} from './picture.js';
import { saveSelect, savePlot, type Format } from './saving.js';
import { readColors, readTheme, type ITheme } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';
import type { Range } from './uplotparts.js';

const MAX_NAMED = 16;

/** The part of a group that a plot uses. */
export interface IMembership {
  trans: ITrans;
  syncKey: string;
  frame: () => IGroupFrame;
  onZoom: (range: Range | null) => void;
}

export class PicturePlot extends Figure<IPicture> {
  constructor(private readonly _group: IMembership) {
    const legend = h('div.det-legend');
    super(
      _group.trans,
      legend,
      saveSelect(_group.trans, format => this._save(format))
    );
    this._rebuildLegend = rebuilder(legend, (shown: ILegendShown) => this._legendItems(shown));
  }

  /** Show this picture; it is drawn in one of the next frames. */
  update(picture: IPicture): void {
    const named = picture.curves.filter(one => !one.isFaint).slice(0, MAX_NAMED);
    this._named = named;
    this.node.classList.toggle('det-wide', picture.isWide ?? false);
    const items = named.map(one => itemOf(one, picture.kind));
    this._rebuildLegend({ items, numOthers: picture.curves.length - named.length });
    this._show(picture, {
      title: picture.title,
      description: this._description(picture),
      empty: picture.empty
    });
    this.redraw();
  }

  /** Draw again, as the group's frame has changed. */
  redraw(): void {
    frames.ask(this._drawNow);
  }

  override dispose(): void {
    frames.drop(this._drawNow);
    super.dispose();
  }

  protected _shapeOf(picture: IPicture): string {
    return pictureShape(picture, this._group.frame());
  }

  protected _columnsOf(picture: IPicture): uPlot.AlignedData {
    return pictureColumns(picture);
  }

  protected _options(width: number): uPlot.Options {
    return pictureOptions(
      {
        picture: () => this._shown as IPicture,
        frame: this._group.frame,
        theme: () => this._theme as ITheme,
        resolved: color => this._colors.get(color) ?? color,
        syncKey: this._group.syncKey,
        onCursor: () => this._readCursor(),
        onZoom: range => this._onZoom(range)
      },
      width
    );
  }

  protected _read(x: number | null, place: number): string {
    const picture = this._shown as IPicture;
    this._named.forEach((one, i) => {
      const value = valueBefore(one.values, x === null ? -1 : place);
      setText(this._values[i] as Element, value === null ? '–' : picture.text(value));
    });
    return x === null ? '' : placeText(this._group.frame().axis, x, this._trans);
  }

  protected _legendText(): string {
    return this._named
      .map((one, i) => `${one.label} ${this._values[i]?.textContent ?? ''}`)
      .join(', ');
  }

  protected _readTheme(): void {
    const colors = new Set(this._shown?.curves.map(one => one.color));
    this._theme = readTheme(this.node);
    this._colors = readColors(this.node, [...colors]);
  }

  protected _range(): Range {
    return this._group.frame().range;
  }

  protected _onZoom(range: Range | null): void {
    this._group.onZoom(range);
  }

  private _save(format: Format): void {
    if (this._shown !== undefined && this._plot !== undefined && this._theme !== undefined) {
      const resolved = (color: string): string => this._colors.get(color) ?? color;
      const look = { theme: this._theme, resolved };
      void savePlot(format, this._shown, this._plot, look, this._group.frame().axis);
    }
  }

  private _description({ title, empty }: IPicture): string {
    const how = this._trans.__('arrow keys read it step by step, + - 0 zoom, Shift+arrows move');
    return empty === '' ? [title, ...this._named.map(one => one.label), how].join(', ') : title;
  }

  private _legendItems({ items, numOthers }: ILegendShown): HTMLElement[] {
    this._values = items.map(() => h('b'));
    const nodes = items.map((item, i) => {
      const key = h('i', { class: item.classes });
      key.style.color = item.color;
      return h(
        'span.det-legend-item',
        {},
        key,
        h('span', {}, item.label),
        this._values[i] as HTMLElement
      );
    });
    const text = this._trans._n('%1 other is faint', '%1 others are faint', numOthers);
    return numOthers > 0 ? [...nodes, h('span.det-quiet', {}, text)] : nodes;
  }

  private readonly _drawNow = (): void => this._draw();
  private readonly _rebuildLegend: (shown: ILegendShown) => void;
  private _named: ICurve[] = [];
  private _values: HTMLElement[] = [];
  private _theme: ITheme | undefined;
  private _colors = new Map<string, string>();
}

interface ILegendShown {
  items: ILegendItem[];
  numOthers: number;
}

interface ILegendItem {
  label: string;
  color: string;
  classes: string;
}

function itemOf(
  { label, color, isDashed, isHatched, hasDots }: ICurve,
  kind: IPicture['kind']
): ILegendItem {
  const line = `det-key${isDashed ? ' det-mod-dashed' : ''}${hasDots ? ' det-mod-points' : ''}`;
  const patch = `det-patch${isHatched ? ' det-mod-hatched' : ''}`;
  return { label, color, classes: kind === 'stack' ? patch : line };
}
