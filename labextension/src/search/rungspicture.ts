/** The picture of the rungs: where each trial is, and whether it continues. */
import { rebuilder } from '../dom/dom.js';
import type { Focus } from './focus.js';
import { formatNumber } from '../model/format.js';
import { drawMark, markKey } from './marks.js';
import { MARKS, type ISearchState, type Mark } from '../model/state.js';
import {
  layoutRungs,
  nearestDot,
  nextDot,
  type IColumn,
  type IDot,
  type IRungsLayout
} from './rungs.js';
import { axisText } from '../model/scales.js';
import { drawGrid, firstFitting, fitted, Stage, type IBrush } from '../dom/stage.js';
import type { ITrans } from '../model/trans.js';

const HEIGHT = 250;
/** The number of dots from which on links are drawn fainter. */
const FULL = 200;

export class RungsPicture {
  readonly stage: Stage;

  constructor(
    private readonly _trans: ITrans,
    private readonly _focus: Focus
  ) {
    this.stage = new Stage({
      title: _trans.__('Rungs'),
      height: HEIGHT,
      draw: brush => this._draw(brush),
      onPoint: at => this._point(at === null ? null : nearestDot(this._dots(), at.x, at.y)),
      onClick: at => {
        const dot = nearestDot(this._dots(), at.x, at.y);
        _focus.choose(dot === null || dot.row.id === _focus.chosen ? null : dot.row.id);
      },
      onKey: key => this._onKey(key)
    });
    this._drawLegend = rebuilder(this.stage.foot, (marks: Mark[]) =>
      marks.map(mark => markKey(mark, _trans))
    );
  }

  update(search: ISearchState): void {
    this._search = search;
    this._layout = undefined;
    this.stage.describe(this._description(search));
    this.stage.redraw();
  }

  private _description(search: ISearchState): string {
    const trans = this._trans;
    const rungs = search.brackets.flatMap(bracket =>
      bracket.rungs.map(rung =>
        trans.__('%1: %2 reached, %3 promoted', rung.label, rung.num_results, rung.num_promoted)
      )
    );
    return [
      trans.__('Trials at each rung by %1', search.metric),
      ...rungs,
      trans.__('arrow keys read it trial by trial, Enter chooses')
    ].join('; ');
  }

  private _dots(): readonly IDot[] {
    return this._layout?.dots ?? [];
  }

  private _point(dot: IDot | null): void {
    this._cursor = dot;
    this.stage.read(dot === null ? '' : this._dotText(dot));
    this._focus.point(dot?.row.id ?? null);
  }

  private _onKey(key: string): boolean {
    if (key === 'Escape' && this._focus.chosen !== null) {
      this._focus.choose(null);
      return true;
    }
    if ((key === 'Enter' || key === ' ') && this._cursor !== null) {
      this._focus.choose(this._cursor.row.id);
      return true;
    }
    if (!['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(key)) {
      return false;
    }
    const from = this._dots().find(
      dot => dot.row.id === this._cursor?.row.id && dot.rung === this._cursor.rung
    );
    this._point(nextDot(this._dots(), from ?? null, key));
    this.stage.speak(this._cursor === null ? '' : this._dotText(this._cursor));
    return true;
  }

  private _dotText({ row, rung, mark, value }: IDot): string {
    const search = this._search as ISearchState;
    const trans = this._trans;
    const label = search.brackets[row.bracket ?? 0]?.rungs[rung]?.label ?? '';
    const isReached = rung < row.rungs.length;
    const parts = [
      trans.__('trial %1', row.id),
      `${label}: ${trans.__(MARKS[mark].word)}`,
      value === null
        ? isReached
          ? trans.__('no %1: counted as the worst', search.metric)
          : trans.__('no %1 yet', search.metric)
        : `${search.metric} ${formatNumber(value)}${isReached ? '' : ` ${trans.__('so far')}`}`,
      ...search.axes.map((axis, i) => `${axis.name} ${axisText(axis, row.values[i] ?? null)}`)
    ];
    return parts.join(' · ');
  }

  private _draw(brush: IBrush): void {
    const search = this._search;
    if (search === undefined) {
      return;
    }
    if (this._layout === undefined || this._laidOutFor !== brush.width) {
      this._layout = layoutRungs(search, brush);
      this._laidOutFor = brush.width;
      const seen = new Set(this._layout.dots.map(dot => dot.mark));
      const order = Object.keys(MARKS) as Mark[];
      this._drawLegend(order.filter(mark => seen.has(mark)));
    }
    this._drawFrame(brush, this._layout, search);
    this._drawLinks(brush, this._layout.dots);
    this._drawDots(brush, this._layout);
  }

  private _drawFrame(brush: IBrush, layout: IRungsLayout, search: ISearchState): void {
    const { context, height } = brush;
    drawGrid(brush, layout.left, layout.ticks);
    if (layout.stripY !== null) {
      context.textAlign = 'right';
      context.fillText(this._trans.__('none'), layout.left - 6, layout.stripY);
    }
    this._drawHeadings(brush, layout, search);
    context.setLineDash([2, 3]);
    for (const { left } of layout.columns) {
      context.beginPath();
      context.moveTo(left + 0.5, layout.top - 6);
      context.lineTo(left + 0.5, height - 4);
      context.stroke();
    }
    context.setLineDash([]);
  }

  /** Draw the names of brackets and rungs, and numbers of trials; as short as columns need. */
  private _drawHeadings(
    { context, theme }: IBrush,
    { columns, top }: IRungsLayout,
    search: ISearchState
  ): void {
    const rungs = search.brackets.flatMap(bracket => bracket.rungs);
    const room = (columns[0]?.width ?? 0) - 4;
    const write = (choices: string[][], y: number): void => {
      firstFitting(context, choices, room).forEach((text, i) => {
        const { left, width } = columns[i] as IColumn;
        context.fillText(text, left + width / 2, y);
      });
    };
    const names = [rungs.map(rung => rung.label), rungs.map(rung => rung.short_label)];
    const facts = [
      rungs.map(({ num_results, num_promoted }) =>
        this._trans.__('%1 reached · %2 promoted', num_results, num_promoted)
      ),
      ...[' → ', '→'].map(arrow =>
        rungs.map(one => `${one.num_results}${arrow}${one.num_promoted}`)
      )
    ];
    context.textAlign = 'center';
    context.fillStyle = theme.strong;
    context.font = `600 ${theme.font}`;
    write(names, top - 31);
    context.font = theme.font;
    context.fillStyle = theme.text;
    write(facts, top - 16);
    context.textAlign = 'left';
    for (const { bracket, rung, left, width } of columns) {
      if (search.brackets.length > 1 && rung === 0) {
        const length = width * (search.brackets[bracket]?.rungs.length ?? 1);
        const name = this._trans.__('bracket %1', bracket + 1);
        context.fillText(fitted(context, name, length), left, 8);
      }
    }
  }

  /** Draw links from rung to rung, stronger for the chosen and the pointed trial. */
  private _drawLinks({ context, theme }: IBrush, dots: readonly IDot[]): void {
    const { chosen, pointed } = this._focus;
    const alpha = Math.min(1, Math.max(0.25, FULL / dots.length));
    dots.forEach((dot, i) => {
      const next = dots[i + 1];
      if (next?.row.id !== dot.row.id) {
        return;
      }
      const isLookedAt = dot.row.id === chosen || dot.row.id === pointed;
      context.strokeStyle = isLookedAt ? theme.strong : theme.grid;
      context.globalAlpha = isLookedAt ? 1 : alpha;
      context.lineWidth = isLookedAt ? 1.8 : 1;
      context.beginPath();
      context.moveTo(dot.x, dot.y);
      context.lineTo(next.x, next.y);
      context.stroke();
    });
    context.globalAlpha = 1;
  }

  private _drawDots({ context, theme }: IBrush, { dots, markSize }: IRungsLayout): void {
    const { chosen, pointed } = this._focus;
    for (const dot of dots) {
      context.globalAlpha = this._focus.keeps(dot.row) ? 0.85 : 0.15;
      drawMark(context, theme, dot, markSize);
    }
    context.globalAlpha = 1;
    for (const dot of dots.filter(({ row }) => row.id === chosen || row.id === pointed)) {
      drawMark(context, theme, dot, 1.3);
      context.strokeStyle = theme.strong;
      context.lineWidth = dot.row.id === chosen ? 2 : 1;
      context.beginPath();
      context.arc(dot.x, dot.y, 9, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  private readonly _drawLegend: (marks: Mark[]) => void;
  private _search: ISearchState | undefined;
  private _layout: IRungsLayout | undefined;
  private _laidOutFor = 0;
  private _cursor: IDot | null = null;
}
